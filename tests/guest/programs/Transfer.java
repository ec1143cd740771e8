// SPDX-License-Identifier: GPL-2.0-only
// A client and a server as programs of OpenJDK know them: nothing in here knows of SDP, which the system property
// com.sun.sdp.conf brings in.

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Random;

public class Transfer {
    static final int CLIENTS = 2;

    public static void main(String[] args) throws Exception {
        InetSocketAddress address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        switch (args[0]) {
            case "server" -> server(address);
            case "client" -> client(address, Integer.parseInt(args[3]));
            case "nio-server" -> nioServer(address);
            case "nio-client" -> nioClient(address, Integer.parseInt(args[3]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Reads length and data from each client, and answers with their SHA-256. */
    static void server(InetSocketAddress address) throws Exception {
        try (ServerSocket listener = new ServerSocket()) {
            listener.setReuseAddress(true);
            listener.bind(address, 5);
            for (int i = 0; i < CLIENTS; i++) {
                try (Socket socket = listener.accept()) {
                    socket.setTcpNoDelay(true);
                    DataInputStream in = new DataInputStream(socket.getInputStream());
                    DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                    byte[] data = in.readNBytes(in.readInt());
                    out.write(MessageDigest.getInstance("SHA-256").digest(data));
                    out.flush();
                    if (in.read() != -1)
                        throw new IOException("more data than announced");
                }
            }
        }
    }

    static void client(InetSocketAddress address, int size) throws Exception {
        byte[] data = new byte[size];
        new Random(size).nextBytes(data);
        byte[] mine = MessageDigest.getInstance("SHA-256").digest(data);
        for (int i = 0; i < CLIENTS; i++) {
            try (Socket socket = connect(address)) {
                socket.setSoTimeout(120000);
                DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                out.writeInt(size);
                out.write(data);
                out.flush();
                byte[] theirs = new DataInputStream(socket.getInputStream()).readNBytes(32);
                socket.shutdownOutput();
                compare(mine, theirs);
                if (socket.getInputStream().read() != -1)
                    throw new IOException("more data than a hash");
            }
        }
        System.out.println(size + " " + HexFormat.of().formatHex(mine));
    }

    static Socket connect(InetSocketAddress address) throws Exception {
        for (int tries = 0; ; tries++) {
            Socket socket = new Socket();
            try {
                socket.connect(address, 10000);
                return socket;
            } catch (ConnectException e) {
                socket.close();
                if (tries == 300)
                    throw e;
                Thread.sleep(200);      // until the server listens
            }
        }
    }

    static void compare(byte[] mine, byte[] theirs) throws IOException {
        if (!MessageDigest.isEqual(mine, theirs))
            throw new IOException("the server hashed other data");
    }

    /** An echo server on channels and a selector. */
    static void nioServer(InetSocketAddress address) throws Exception {
        try (Selector selector = Selector.open(); ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(address);
            listener.configureBlocking(false);
            listener.register(selector, SelectionKey.OP_ACCEPT);
            ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
            for (boolean done = false; !done; ) {
                selector.select();
                for (SelectionKey key : selector.selectedKeys()) {
                    if (key.isAcceptable()) {
                        SocketChannel channel = listener.accept();
                        channel.configureBlocking(false);
                        channel.register(selector, SelectionKey.OP_READ);
                        continue;
                    }
                    SocketChannel channel = (SocketChannel) key.channel();
                    buffer.clear();
                    if (channel.read(buffer) < 0) {
                        channel.close();
                        done = true;
                        continue;
                    }
                    buffer.flip();
                    while (buffer.hasRemaining())
                        if (channel.write(buffer) == 0)
                            Thread.onSpinWait();
                }
                selector.selectedKeys().clear();
            }
        }
    }

    static void nioClient(InetSocketAddress address, int size) throws Exception {
        byte[] data = new byte[size];
        new Random(size).nextBytes(data);
        SocketChannel channel = null;
        for (int tries = 0; channel == null; tries++) {
            try {
                channel = SocketChannel.open(address);
            } catch (ConnectException e) {
                if (tries == 300)
                    throw e;
                Thread.sleep(200);
            }
        }
        byte[] back = new byte[size];
        ByteBuffer out = ByteBuffer.wrap(data), in = ByteBuffer.wrap(back);
        channel.configureBlocking(false);
        try (Selector selector = Selector.open()) {
            SelectionKey key = channel.register(selector, SelectionKey.OP_READ | SelectionKey.OP_WRITE);
            while (in.hasRemaining()) {
                if (selector.select(60000) == 0)
                    throw new IOException("stuck with " + out.position() + " out and " + in.position() + " back");
                selector.selectedKeys().clear();
                channel.write(out);
                if (channel.read(in) < 0)
                    throw new IOException("end after " + in.position());
                if (!out.hasRemaining())
                    key.interestOps(SelectionKey.OP_READ);
            }
        }
        channel.close();
        compare(data, back);
        System.out.println(size + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(back)));
    }
}

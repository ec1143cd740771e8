// SPDX-License-Identifier: GPL-2.0-only
// An echo server of one thread for many connections, by a selector, and its clients: nothing in here knows of SDP.

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Random;

public class Selectors {
    static final int CLIENTS = 8, SIZE = 500000;

    public static void main(String[] args) throws Exception {
        var address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        try (Selector selector = Selector.open()) {
            if (args[0].equals("server"))
                serve(selector, address);
            else
                System.out.println(ask(selector, address) + " came back");
        }
    }

    static void serve(Selector selector, InetSocketAddress address) throws IOException {
        ServerSocketChannel listener = ServerSocketChannel.open().bind(address);
        listener.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select(key -> {
                try {
                    if (key.isAcceptable())
                        listener.accept().configureBlocking(false).register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                    else
                        echo(key);
                } catch (IOException e) {
                    throw new RuntimeException(e);
                }
            });
        }
    }

    /** What cannot be written waits in the key's buffer; nothing is read while that is full. */
    static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        if (key.isReadable() && channel.read(buffer) < 0)
            channel.close();
        else {
            channel.write(buffer.flip());
            buffer.compact();
            key.interestOps((buffer.hasRemaining() ? SelectionKey.OP_READ : 0) | (buffer.position() > 0 ? SelectionKey.OP_WRITE : 0));
        }
    }

    /** One side of a connection: its bytes, those that are left to send, and those that came back. */
    record Client(byte[] data, ByteBuffer out, ByteBuffer back) { }

    static int ask(Selector selector, InetSocketAddress address) throws IOException {
        for (int i = 0; i < CLIENTS; i++) {
            byte[] data = new byte[SIZE];
            new Random(i).nextBytes(data);
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.connect(address);
            channel.register(selector, SelectionKey.OP_CONNECT, new Client(data, ByteBuffer.wrap(data), ByteBuffer.allocate(SIZE)));
        }
        int good = 0;
        for (int left = CLIENTS; left > 0; ) {
            if (selector.select(60000) == 0)
                throw new IOException("nothing comes to pass");
            for (SelectionKey key : selector.selectedKeys()) {
                SocketChannel channel = (SocketChannel) key.channel();
                Client client = (Client) key.attachment();
                if (key.isConnectable())
                    channel.finishConnect();
                channel.write(client.out);
                if (channel.read(client.back) < 0)
                    throw new IOException("end after " + client.back.position());
                key.interestOps(SelectionKey.OP_READ | (client.out.hasRemaining() ? SelectionKey.OP_WRITE : 0));
                if (!client.back.hasRemaining()) {
                    good += client.back.flip().equals(ByteBuffer.wrap(client.data)) ? 1 : 0;
                    channel.close();
                    left--;
                }
            }
            selector.selectedKeys().clear();
        }
        return good;
    }
}

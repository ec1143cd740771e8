// SPDX-License-Identifier: GPL-2.0-only

import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;

/**
 * Sends a file and compares digests. Sockets are those of java.net, as in any Java program: that
 * they may be SDP's is the business of the JDK's own com.sun.sdp.conf alone.
 *
 *     java Transfer serve PORT
 *     java Transfer send HOST PORT FILE
 */
public class Transfer {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            serve(Integer.parseInt(arguments[1]));
        } else {
            send(arguments[1], Integer.parseInt(arguments[2]), Path.of(arguments[3]));
        }
    }

    /** Takes one connection, reads all of it and answers with the digest of what it has read. */
    static void serve(int port) throws Exception {
        try (ServerSocket server = new ServerSocket(port)) {
            System.out.println("listening");
            try (Socket connection = server.accept()) {
                MessageDigest digest = MessageDigest.getInstance("SHA-256");
                InputStream in = connection.getInputStream();
                byte[] buffer = new byte[1 << 16];
                for (int count; (count = in.read(buffer)) > 0; ) {
                    digest.update(buffer, 0, count);
                }
                String hex = HexFormat.of().formatHex(digest.digest());
                connection.getOutputStream().write(hex.getBytes(StandardCharsets.US_ASCII));
            }
        }
    }

    /** Sends a file; prints the bytes, the seconds, and the digests as sent and as received. */
    static void send(String host, int port, Path file) throws Exception {
        byte[] bytes = Files.readAllBytes(file);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
        long start = System.nanoTime();
        try (Socket connection = new Socket()) {
            connection.connect(new InetSocketAddress(host, port));
            OutputStream out = connection.getOutputStream();
            for (int at = 0; at < bytes.length; at += 1 << 16) {
                out.write(bytes, at, Math.min(1 << 16, bytes.length - at));
            }
            connection.shutdownOutput();
            byte[] answer = connection.getInputStream().readAllBytes();
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println(bytes.length + " " + seconds + " " + HexFormat.of().formatHex(digest)
                + " " + new String(answer, StandardCharsets.US_ASCII));
        }
    }
}

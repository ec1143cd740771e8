// SPDX-License-Identifier: GPL-2.0-only

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousServerSocketChannel;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.CompletionHandler;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;

/** HttpClient, and AsynchronousSocketChannel at both ends: what they send comes back. */
class Clients {
    static final int SIZE = 1_000_000, EACH = 4;

    public static void main(String[] words) throws Exception {
        var http = new InetSocketAddress(words[1], Integer.parseInt(words[2]));
        var plain = new InetSocketAddress(words[1], Integer.parseInt(words[3]));
        if (words[0].equals("server")) {
            accept(AsynchronousServerSocketChannel.open().bind(plain));
            var server = HttpServer.create(http, 16);
            server.createContext("/", exchange -> {
                var body = exchange.getRequestBody().readAllBytes();
                exchange.sendResponseHeaders(200, body.length);
                try (var out = exchange.getResponseBody()) {
                    out.write(body);
                }
            });
            server.setExecutor(Executors.newCachedThreadPool());
            server.start();
            return;
        }
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var uri = URI.create("http://" + words[1] + ":" + words[2] + "/");
        var answers = new CompletableFuture<?>[EACH];
        int came = 0;
        for (int i = 0; i < EACH; i++) {
            var body = bytes(i);
            var request = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
            answers[i] = client.sendAsync(request, BodyHandlers.ofByteArray()).thenApply(r -> Arrays.equals(r.body(), body));
        }
        for (var answer : answers)
            came += (Boolean) answer.get() ? 1 : 0;
        for (int i = 0; i < EACH; i++)
            came += comesBack(plain, bytes(i)) ? 1 : 0;
        System.out.println(came + " came back");
        System.exit(0);
    }

    static byte[] bytes(int seed) {
        var bytes = new byte[SIZE];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    static boolean comesBack(InetSocketAddress to, byte[] sent) throws Exception {
        try (var channel = AsynchronousSocketChannel.open()) {
            channel.connect(to).get();
            var from = ByteBuffer.wrap(sent);
            var got = ByteBuffer.allocate(SIZE);
            var writing = CompletableFuture.runAsync(() -> {
                try {
                    while (from.hasRemaining())
                        channel.write(from).get();
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            }, Executors.newSingleThreadExecutor());
            while (got.hasRemaining() && channel.read(got).get() >= 0) {
            }
            writing.get();
            return Arrays.equals(got.array(), sent);
        }
    }

    static void accept(AsynchronousServerSocketChannel listener) {
        listener.accept(null, new CompletionHandler<AsynchronousSocketChannel, Void>() {
            public void completed(AsynchronousSocketChannel channel, Void nothing) {
                accept(listener);
                new Echo(channel).read();
            }

            public void failed(Throwable e, Void nothing) {
                e.printStackTrace();
            }
        });
    }

    /** Reads, and writes what was read, until the end. */
    static class Echo implements CompletionHandler<Integer, Boolean> {
        final AsynchronousSocketChannel channel;
        final ByteBuffer buffer = ByteBuffer.allocate(65536);

        Echo(AsynchronousSocketChannel channel) {
            this.channel = channel;
        }

        void read() {
            channel.read(buffer.clear(), true, this);
        }

        public void completed(Integer n, Boolean wasRead) {
            if (n < 0) {
                close();
                return;
            }
            if (wasRead)
                buffer.flip();
            if (buffer.hasRemaining())
                channel.write(buffer, false, this);
            else
                read();
        }

        public void failed(Throwable e, Boolean wasRead) {
            close();
        }

        void close() {
            try {
                channel.close();
            } catch (IOException e) {
                e.printStackTrace();
            }
        }
    }
}

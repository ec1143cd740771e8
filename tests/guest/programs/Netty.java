// SPDX-License-Identifier: GPL-2.0-only
// An echo server and its clients on Netty: nothing in here knows of SDP.

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

public class Netty {
    static final int CLIENTS = 8, SIZE = 500000;

    static class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.writeAndFlush(message);
        }
    }

    /** Sends so much once it is connected, and compares what comes back. */
    static class Asks extends ChannelInboundHandlerAdapter {
        static final CountDownLatch left = new CountDownLatch(CLIENTS);
        static final AtomicInteger good = new AtomicInteger();
        final byte[] sent = new byte[SIZE];
        final ByteBuf back = Unpooled.buffer(SIZE);

        @Override
        public void channelActive(ChannelHandlerContext context) {
            new Random().nextBytes(sent);
            context.writeAndFlush(Unpooled.wrappedBuffer(sent));
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            back.writeBytes((ByteBuf) message);
            ((ByteBuf) message).release();
            if (back.readableBytes() >= SIZE)
                context.close();
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            if (back.equals(Unpooled.wrappedBuffer(sent)))
                good.incrementAndGet();
            left.countDown();
        }
    }

    public static void main(String[] args) throws Exception {
        var group = new NioEventLoopGroup(2);
        int port = Integer.parseInt(args[2]);
        if (args[0].equals("server")) {
            var server = new ServerBootstrap().group(group).channel(NioServerSocketChannel.class);
            server.childHandler(new ChannelInitializer<Channel>() {
                @Override
                protected void initChannel(Channel channel) {
                    channel.pipeline().addLast(new Echo());
                }
            });
            server.bind(args[1], port).sync().channel().closeFuture().sync();
        }
        for (int i = 0; i < CLIENTS; i++)
            new Bootstrap().group(group).channel(NioSocketChannel.class).handler(new Asks()).connect(args[1], port).sync();
        Asks.left.await();
        System.out.println(Asks.good + " came back");
        System.exit(0);
    }
}

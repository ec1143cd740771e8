// SPDX-License-Identifier: GPL-2.0-only

//! Table of the socket calls and the functions that implement them.

use super::netns::Netns;
use super::{
    bind, close, connect, ipproto, listen, options, poll, receive, release, send, timer, upcalls,
};
use crate::conn::{
    keepalive, rx_buffers, zcopy, SdpSock, Socket, JOB_ADMIT, JOB_FALL_BACK, JOB_FINISH, JOB_MOVE,
    JOB_PROGRESS, JOB_RESIZE, JOB_TOUCHED,
};
use crate::sys::address::{Address, Named};
use crate::sys::net::descriptor::Descriptor;
use crate::sys::net::family::Family;
use crate::sys::net::message::{RecvMsg, SendMsg};
use crate::sys::net::netns::InNet;
use crate::sys::net::options::{NewValue, OldValue};
use crate::sys::net::unaccepted::Unaccepted;
use kernel::prelude::*;

impl InNet for Socket {
    type Net = Netns;
}

impl Family for Socket {
    fn init() -> impl PinInit<Self, Error> {
        Socket::new()
    }

    fn opened(sk: &SdpSock) -> Result {
        sk.netns().enter(sk)
    }

    fn take_port(sk: &SdpSock, port: u16) -> Result {
        bind::take_port(sk, port)
    }

    fn give_port(sk: &SdpSock) {
        bind::give_port(sk)
    }

    fn bound(sk: &SdpSock, to: &Address, result: Result) {
        bind::note_bind(sk, to, result)
    }

    fn connect(call: &Descriptor<'_, Self>, to: &Named, non_blocking: bool) -> Result {
        connect::connect(call, to, non_blocking)
    }

    fn listen(call: &Descriptor<'_, Self>, backlog: u32) -> Result {
        listen::listen(call, backlog)
    }

    fn accept(sk: &SdpSock, non_blocking: bool) -> Result<Unaccepted<Socket>> {
        listen::accept(sk, non_blocking)
    }

    fn poll(sk: &SdpSock) -> u32 {
        poll::poll(sk)
    }

    fn send(sk: &SdpSock, message: &mut SendMsg<'_>) -> Result<usize> {
        send::send(sk, message)
    }

    fn splice_eof(sk: &SdpSock) {
        send::announced_no_more(sk)
    }

    fn receive(sk: &SdpSock, to: &mut RecvMsg<'_>) -> Result<usize> {
        receive::receive(sk, to)
    }

    fn ioctl(sk: &SdpSock, command: u32) -> Result<i32> {
        options::ioctl(sk, command)
    }

    fn shutdown(sk: &SdpSock, how: u8) {
        close::shutdown(sk, how)
    }

    fn disconnect(sk: &SdpSock) -> Result {
        close::disconnect(sk);
        Ok(())
    }

    fn close(sk: &SdpSock, linger: usize) {
        close::close(sk, linger)
    }

    fn set_option(sk: &SdpSock, level: i32, name: i32, value: &NewValue<'_>) -> Result {
        options::set(sk, level, name, value)
    }

    fn get_option(sk: &SdpSock, level: i32, name: i32, value: &OldValue<'_>) -> Result {
        options::get(sk, level, name, value)
    }

    fn set_keepalive(sk: &SdpSock, on: bool) {
        keepalive::set_keepalive(sk, on)
    }

    fn set_rcvlowat(sk: &SdpSock, bytes: i32) -> Result {
        options::set_rcvlowat(sk, bytes)
    }

    fn work(sk: &SdpSock, jobs: u32) {
        if jobs & JOB_FALL_BACK != 0 {
            ipproto::fall_back(sk);
        }
        if jobs & JOB_ADMIT != 0 {
            upcalls::admit(sk);
        }
        if jobs & JOB_RESIZE != 0 {
            rx_buffers::resize(sk);
        }
        if jobs & JOB_TOUCHED != 0 {
            zcopy::protected::touched(sk);
        }
        if jobs & JOB_MOVE != 0 {
            zcopy::protected::move_away(sk);
            zcopy::spliced::flush_closed(sk);
        }
        if jobs & JOB_PROGRESS != 0 {
            sk.progress();
        }
        if jobs & JOB_FINISH != 0 {
            release::finish(sk);
        }
    }

    fn timer(sk: &SdpSock) {
        timer::expired(sk)
    }
}

// SPDX-License-Identifier: GPL-2.0-only

// Built together with transfer.go it is transfer27, whose sockets are those of the family AF_INET_SDP.
package main

import (
	"net"
	"os"
	"syscall"
)

const familySDP = 27

// family27 makes a socket of the family and hands its end, once it listens or is connected, to package net.
func family27(address string, ready func(socket int, address syscall.Sockaddr) error) (*os.File, error) {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	socket, err := syscall.Socket(familySDP, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(socket), address)
	ipv4 := syscall.SockaddrInet4{Port: to.Port}
	copy(ipv4.Addr[:], to.IP.To4())
	if err := ready(socket, &ipv4); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func listen27(_, address string) (net.Listener, error) {
	file, err := family27(address, func(socket int, address syscall.Sockaddr) error {
		if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := syscall.Bind(socket, address); err != nil {
			return os.NewSyscallError("bind", err)
		}
		return os.NewSyscallError("listen", syscall.Listen(socket, 128))
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileListener(file)
}

func dial27(_, address string) (net.Conn, error) {
	file, err := family27(address, func(socket int, address syscall.Sockaddr) error {
		return os.NewSyscallError("connect", syscall.Connect(socket, address))
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileConn(file)
}

func init() {
	listen, dial = listen27, dial27
}

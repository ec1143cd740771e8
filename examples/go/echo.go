// SPDX-License-Identifier: GPL-2.0-only

// Echo server and client in Go: echo server PORT | echo client HOST PORT TEXT
//
// Package net has no way to choose a protocol. The socket is made by package syscall, and handed to
// package net once it listens or is connected. Programs that cannot be changed use `sdpctl map`.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"syscall"
)

const ipprotoSDP = 257

// sdpSocket makes a socket of IPPROTO_SDP and an address for it.
func sdpSocket(host, port string) (int, syscall.Sockaddr, error) {
	to, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return -1, nil, err
	}
	if ip := to.IP.To4(); ip != nil {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, ipprotoSDP)
		return fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}, err
	}
	address := &syscall.SockaddrInet6{Port: to.Port}
	copy(address.Addr[:], to.IP)
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, ipprotoSDP)
	return fd, address, err
}

func listen(port string) (net.Listener, error) {
	fd, address, err := sdpSocket("", port)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err := syscall.Bind(fd, address); err != nil {
		return nil, err
	}
	if err := syscall.Listen(fd, 128); err != nil {
		return nil, err
	}
	return net.FileListener(file)
}

func dial(host, port string) (net.Conn, error) {
	fd, address, err := sdpSocket(host, port)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "connection")
	defer file.Close()
	if err := syscall.Connect(fd, address); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

func protocol(connection net.Conn) string {
	number := syscall.IPPROTO_TCP
	raw, err := connection.(*net.TCPConn).SyscallConn()
	check(err)
	raw.Control(func(fd uintptr) {
		number, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PROTOCOL)
	})
	check(err)
	if number == syscall.IPPROTO_TCP {
		return "TCP"
	}
	return "SDP"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "server":
		listener, err := listen(os.Args[2])
		check(err)
		fmt.Println("listening on port", os.Args[2])
		for {
			connection, err := listener.Accept()
			check(err)
			fmt.Println("connection by", protocol(connection))
			go func() {
				defer connection.Close()
				io.Copy(connection, connection)
			}()
		}
	case len(os.Args) == 5 && os.Args[1] == "client":
		connection, err := dial(os.Args[2], os.Args[3])
		check(err)
		fmt.Fprintln(os.Stderr, "connected by", protocol(connection))
		_, err = io.WriteString(connection, os.Args[4])
		check(err)
		check(connection.(*net.TCPConn).CloseWrite())
		echo, err := io.ReadAll(connection)
		check(err)
		fmt.Println(string(echo))
	default:
		log.Fatal("usage: echo server PORT | echo client HOST PORT TEXT")
	}
}

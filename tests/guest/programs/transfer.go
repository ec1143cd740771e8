// SPDX-License-Identifier: GPL-2.0-only

// A Go client and server. Go calls the kernel itself, so no library can be preloaded into them.
//
//	transfer SOCKETS server ADDRESS:PORT COUNT              echoes COUNT connections, all at once
//	transfer SOCKETS client ADDRESS:PORT COUNT FILE         sends FILE by each of COUNT connections, checks the echo, and
//	                                                        prints the bytes, the seconds and the SHA-256 of each echo
//
// SOCKETS says whose: `net` for those that Go's package net makes, as programs have them that know nothing of SDP;
// `27` for sockets of the family AF_INET_SDP, which are made here and then given to package net.
//
// The client's bytes go by sendfile(2) and the echo by splice(2), as io.Copy has it, and epoll waits for all of them.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
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

func listen(sockets, address string) (net.Listener, error) {
	if sockets == "net" {
		return net.Listen("tcp4", address)
	}
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

func dial(sockets, address string) (net.Conn, error) {
	if sockets == "net" {
		return net.Dial("tcp4", address)
	}
	file, err := family27(address, func(socket int, address syscall.Sockaddr) error {
		return os.NewSyscallError("connect", syscall.Connect(socket, address))
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileConn(file)
}

func server(sockets, address string, count int) {
	listener, err := listen(sockets, address)
	check(err)
	fmt.Println("listening")
	var all sync.WaitGroup
	for range count {
		connection, err := listener.Accept()
		check(err)
		all.Add(1)
		go func() {
			defer all.Done()
			defer connection.Close()
			_, err := io.Copy(connection, connection)
			check(err)
			check(connection.(*net.TCPConn).CloseWrite())
		}()
	}
	all.Wait()
}

func client(sockets, address string, count int, name string) {
	sums := make([]string, count)
	sizes := make([]int64, count)
	start := time.Now()
	var all sync.WaitGroup
	for number := range count {
		all.Add(1)
		go func() {
			defer all.Done()
			connection, err := dial(sockets, address)
			check(err)
			defer connection.Close()
			go func() {
				file, err := os.Open(name)
				check(err)
				defer file.Close()
				_, err = io.Copy(connection, file)
				check(err)
				check(connection.(*net.TCPConn).CloseWrite())
			}()
			sum := sha256.New()
			sizes[number], err = io.Copy(sum, connection)
			check(err)
			sums[number] = fmt.Sprintf("%x", sum.Sum(nil))
		}()
	}
	all.Wait()
	var total int64
	for _, size := range sizes {
		total += size
	}
	fmt.Println(total, time.Since(start).Seconds())
	for _, sum := range sums {
		fmt.Println(sum)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 5 || (os.Args[1] != "net" && os.Args[1] != "27") {
		log.Fatal("transfer net|27 server|client ADDRESS:PORT COUNT [FILE]")
	}
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	if os.Args[2] == "server" {
		server(os.Args[1], os.Args[3], count)
	} else {
		client(os.Args[1], os.Args[3], count, os.Args[5])
	}
}

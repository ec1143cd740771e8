// SPDX-License-Identifier: GPL-2.0-only

// A TCP client and server in Go, which do not use SDP by name. Go calls the kernel itself, so no
// library can be preloaded into these programs.
//
//	transfer server ADDRESS:PORT COUNT              echoes COUNT connections, all at once
//	transfer client ADDRESS:PORT COUNT FILE         sends FILE by each of COUNT connections, and prints the bytes that
//	                                                come back, the seconds and the SHA-256 of each echo
//
// The client's bytes go by sendfile(2) and the echo by splice(2), as io.Copy does, and epoll waits
// for all of them.
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
	"time"
)

// Functions that family27.go replaces.
var (
	listen = net.Listen
	dial   = net.Dial
)

func server(address string, count int) {
	listener, err := listen("tcp", address)
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

func client(address string, count int, name string) {
	sums := make([]string, count)
	sizes := make([]int64, count)
	start := time.Now()
	var all sync.WaitGroup
	for number := range count {
		all.Add(1)
		go func() {
			defer all.Done()
			connection, err := dial("tcp", address)
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
	if len(os.Args) < 4 || os.Args[1] == "client" && len(os.Args) < 5 {
		log.Fatal("transfer server|client ADDRESS:PORT COUNT [FILE]")
	}
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	if os.Args[1] == "server" {
		server(os.Args[2], count)
	} else {
		client(os.Args[2], count, os.Args[4])
	}
}

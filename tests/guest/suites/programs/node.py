# SPDX-License-Identifier: GPL-2.0-only
"""Node.js, whose libuv changes epoll sets by io_uring: an HTTP server that streams, an agent with
persistent connections, and one in a worker thread."""

from lib.forms import form

SERVER = """
require("http").createServer((request, answer) => request.pipe(answer)).listen({port}, "{host}")
"""
CLIENT = """
const http = require("http"), crypto = require("crypto"), { Worker, isMainThread, parentPort } = require("worker_threads")
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 })

function echo(size) {
  const sent = crypto.randomBytes(size)
  return new Promise((resolve, reject) => {
    const request = http.request({ host: "{host}", port: {port}, method: "POST", agent }, (answer) => {
      const parts = []
      answer.on("data", (part) => parts.push(part))
      answer.on("end", () => resolve(Number(Buffer.concat(parts).equals(sent))))
    })
    request.on("error", reject)
    request.end(sent)
  })
}

async function all() {
  let good = 0
  for (let turn = 0; turn < 2; turn++)      // the second by connections that were kept
    for (const one of await Promise.all(Array.from({ length: 8 }, () => echo(100000)))) good += one
  agent.destroy()
  return good
}

if (isMainThread) {
  const worker = new Promise((resolve, reject) => new Worker(__filename).on("message", resolve).on("error", reject))
  Promise.all([all(), worker]).then((good) => console.log(good.join(" and ") + " came back"))
} else {
  all().then((good) => parentPort.postMessage(good))
}
"""

# the client also connects to a server that only has TCP
http = form(needs=("node",), server=("node", "{folder}/server.js"), client=("node", "{folder}/client.js"), timeout=240,
            files={"server.js": SERVER, "client.js": CLIENT}, says="16 and 16 came back", sent=3_200_000, received=3_200_000)

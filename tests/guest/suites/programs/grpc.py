# SPDX-License-Identifier: GPL-2.0-only
"""gRPC, whose server sets SO_ZEROCOPY and SO_REUSEPORT: single calls at once on several channels,
and a stream in both directions."""

from lib.forms import form

SERVER = """
import concurrent.futures, grpc

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/echo/one":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)

server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([Echo()])
server.add_insecure_port("{host}:{port}")
server.start()
server.wait_for_termination()
"""
CLIENT = """
import grpc, random
values = [random.Random(n).randbytes(200000) for n in range(12)]
# each channel has its own connection
channels = [grpc.insecure_channel("{host}:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(3)]
calls = [channels[n % 3].unary_unary("/echo/one").future(value, wait_for_ready=True) for n, value in enumerate(values)]
good = sum(call.result() == value for call, value in zip(calls, values))
streamed = list(channels[0].stream_stream("/echo/all")(iter(values)))
print(good, "calls,", sum(map(bytes.__eq__, streamed, values)), "in a stream")
"""

form(needs=("python3",), server=("python3", "{folder}/server.py"), client=("python3", "{folder}/client.py"), timeout=240,
     files={"server.py": SERVER, "client.py": CLIENT}, says="12 calls, 12 in a stream", sent=4_800_000, received=4_800_000)

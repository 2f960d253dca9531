"""grpcio, which echoes messages as bytes: no protobuf. The last of its arguments is the port."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # it has no types
    """Answers every call with its message."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The version that answers a call."""
        return grpc.unary_unary_rpc_method_handler(lambda message, _: message)


def main(port: int) -> None:
    """Serve until the process is ended."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Echo()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[-1]))

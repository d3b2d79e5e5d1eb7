"""A gRPC server keeps files for what it serves: it has no more connections than half of those it may open."""

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import asyncio, resource, socket
    import grpc
    from tidelog_foundation.transport import server_options

    HELLO = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0"

    def connect(port):
        sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        sock.sendall(HELLO)
        return sock

    def is_taken(sock):
        try:
            return sock.recv(1) != b""
        except ConnectionError:
            return False

    async def main():
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))
        options = server_options()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        server = grpc.aio.server(options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        sockets = [await asyncio.to_thread(connect, port) for _ in range(14)]
        taken = [await asyncio.to_thread(is_taken, sock) for sock in sockets]
        print(sum(taken), flush=True)
        for sock in sockets:
            sock.close()
        # A place is free again when the server has seen that a connection has gone.
        while not await asyncio.to_thread(lambda: is_taken(connect(port))):
            await asyncio.sleep(0.01)
        print("again", flush=True)
        await server.stop(0)

    asyncio.run(main())
    """
)


def test_server_takes_as_many_connections_as_half_of_its_files():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["10", "again"], done.stderr[-2000:]

"""A loop made before a fork is not shared with the child; a new one works there."""

import os
import subprocess
import sys

from helpers import beyond_asyncio

FORKED = """
import asyncio, os, socket, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {here!r})
from helpers import new_loop

loop = new_loop()
left, right = socket.socketpair()
left.setblocking(False)
{body}
"""


def run(body):
    source = FORKED.format(here=os.path.dirname(__file__), body=body)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=15)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


NEW_LOOP_IN_CHILD = """
seen = []
loop.add_reader(left, lambda: seen.append(left.recv(100)))
loop.run_until_complete(asyncio.sleep(0.001))
pid = os.fork()
if not pid:
    async def main():
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        server.close()
        await asyncio.sleep(0.001)
        await asyncio.get_running_loop().run_in_executor(None, int)
        return await asyncio.get_running_loop().getaddrinfo("localhost", 1)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main())
    os.write(1, b"child\\n")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
right.send(b"after the fork")
while not seen:
    loop.run_until_complete(asyncio.sleep(0.001))
assert seen == [b"after the fork"]
loop.close()
os.write(1, b"parent\\n")
"""


def test_a_new_loop_works_in_the_child():
    assert run(NEW_LOOP_IN_CHILD) == ["child", "parent"]


CLOSE_IN_CHILD = """
seen = []
loop.add_reader(left, lambda: seen.append(left.recv(100)))
pid = os.fork()
if not pid:
    loop.remove_reader(left)
    loop.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
right.send(b"x")
handle = loop.call_later(5, loop.stop)
while not seen and not handle.cancelled():
    loop.run_until_complete(asyncio.sleep(0.001))
    if loop.time() > handle.when():
        break
os.write(1, b"kept" if seen else b"lost")
"""


@beyond_asyncio("its epoll set is shared with the child")
def test_closing_in_the_child_does_not_disturb_the_parent():
    """removing a descriptor in the child must not take it out of the parent's epoll set."""
    assert run(CLOSE_IN_CHILD) == ["kept"]


RUNNING_LOOP = """
async def main():
    pid = os.fork()
    if not pid:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            os.write(1, b"none\\n")
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    await asyncio.sleep(0.001)
loop.run_until_complete(main())
os.write(1, b"parent\\n")
"""


def test_the_running_loop_is_not_running_in_the_child():
    assert run(RUNNING_LOOP) == ["none", "parent"]


MULTIPROCESSING = """
import multiprocessing
def work(queue):
    async def main():
        await asyncio.sleep(0.001)
        return os.getpid()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        queue.put(runner.run(main()))
context = multiprocessing.get_context("fork")
queue = context.Queue()
children = [context.Process(target=work, args=(queue,)) for _ in range(3)]
for child in children:
    child.start()
found = {queue.get(timeout=10) for _ in children}
for child in children:
    child.join()
assert found == {child.pid for child in children}
assert loop.run_until_complete(asyncio.sleep(0, 1)) == 1
os.write(1, b"ok")
"""


def test_worker_processes_with_loops_of_their_own():
    assert run(MULTIPROCESSING) == ["ok"]

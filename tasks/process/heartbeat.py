"""Detects ranks that have stopped: each rank increments a counter in a shared store, and watches
the counter of the next rank.

A rank that is suspended or cut off from the network does not end collectives as one that died does:
the other ranks would wait for it forever.
"""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from tasks import Facts
from tasks.process import ranks

MAX_INTERVAL = 1.0  # seconds between two increments
COUNTER = "xformer/beats/{}"  # key of a rank in the store
PROCESS = "xformer/process/{}"
FINISHED = 1 << 40  # a finished rank adds this to its counter, so that no rank waits for it


class Heartbeat:
    """Increments this rank's counter and watches that of the next rank (after the last: rank 0), in
    two threads, until `stop`.

    If the watched counter does not change for `timeout` seconds, prints one line and kills the
    watched process if it is on this host: the collectives of the other ranks then fail, and each
    ends. If it is on another host, this process exits: its launcher ends the others. The time is
    counted in intervals of this process, so that a pause of all ranks at once is no fault.
    """

    def __init__(self, timeout: float, rank: int, count: int):
        self.interval = min(MAX_INTERVAL, timeout / 5)
        self.timeout = timeout
        self.rank = rank
        self.next_rank = (rank + 1) % count
        self.store = ranks.store()
        self.watches_store = self.next_rank == 0 and not ranks.store_in_agent()
        self.next_process = ""  # "host pid" of the next rank, once it has started
        self.own_count = 0  # increments of this rank's counter
        self.next_count = 0  # last value read of the next rank's counter
        self.stopped = threading.Event()
        for run in (self._beat, self._watch):
            threading.Thread(target=run, daemon=True, name=f"heartbeat{run.__name__}").start()

    def _beat(self) -> None:
        """Increments this rank's counter and reads the next one's.

        If the process that hosts the store is suspended, this thread waits for the store, and
        `_watch` detects it.
        """
        try:
            process = f"{socket.gethostname()} {os.getpid()}"
            self.store.set(PROCESS.format(self.rank), process)
            self.next_process = self.store.get(PROCESS.format(self.next_rank)).decode()
            while not self.stopped.wait(self.interval):
                self.store.add(COUNTER.format(self.rank), 1)
                if self.next_count < FINISHED:
                    self.next_count = self.store.add(COUNTER.format(self.next_rank), 0)
                    self.own_count += 1
        except RuntimeError:  # the store ended with its process: the launcher ends this one
            self.stopped.set()

    def _watch(self) -> None:
        """Ends the next rank's process when its counter has not changed for `timeout` seconds."""
        next_count, own_count, unchanged = 0, 0, 0.0
        while not self.stopped.wait(self.interval) and self.next_count < FINISHED:
            waits_for_store = self.own_count == own_count and not self.watches_store
            if self.next_count != next_count or waits_for_store or not self.next_process:
                unchanged = 0.0
            else:
                unchanged += self.interval
            next_count, own_count = self.next_count, self.own_count
            if unchanged > self.timeout:
                return self._end_next_rank()

    def _end_next_rank(self) -> None:
        """Kills the next rank's process, or this process if that is on another host."""
        host, pid = self.next_process.rsplit(" ", 1)
        print(
            f"Rank {self.next_rank} has sent no heartbeat for {self.timeout:g} s"
            f" (trainer.rank_timeout): its process {pid} on {host} is stopped or cut off. It is"
            " ended, and the run with it.",
            file=sys.stderr,
            flush=True,
        )
        if host != socket.gethostname():
            os._exit(1)
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)

    def stop(self) -> None:
        """Stops both threads; the previous rank stops watching this one."""
        self.stopped.set()
        with suppress(RuntimeError):
            self.store.add(COUNTER.format(self.rank), FINISHED)


def start(trainer: Facts) -> Heartbeat | None:
    """Starts and returns the heartbeat of this process; None if the run has one rank or
    trainer.rank_timeout is null.
    """
    timeout = ranks.rank_timeout(trainer)
    count = ranks.count()
    return None if timeout is None or count == 1 else Heartbeat(timeout, ranks.rank(), count)

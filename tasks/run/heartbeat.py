"""Detects ranks that have stopped: each rank increments a counter in a shared store, and watches
the counter of the next one.

A rank that is suspended or cut off, unlike one that died, ends no collective: the others would wait
for it forever.
"""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from tasks import Facts
from tasks.run import ranks

EVERY = 1.0  # seconds between two beats, at most
OVER = 1 << 40  # added to its count by a rank that is done, so that none waits for it


class Heartbeat:
    """Increments this rank's counter, and watches that of the next one, around the ring of all
    `count`, in two threads, until `stop`.

    After `patience` seconds without a change, measured in ticks of this process, so that a pause of
    all ranks is no fault, it prints one line and kills the process that it watches if that is on
    this host. Collectives of the others then fail, and each ends by itself. If it is on another
    host, this process ends: its launcher ends the others.
    """

    def __init__(self, patience: float, rank: int, count: int):
        self.every = min(EVERY, patience / 5)
        self.patience = patience
        self.rank = rank
        self.next = (rank + 1) % count
        self.store = ranks.store()
        self.watches_store = self.next == 0 and not ranks.store_in_agent()
        self.place = ""  # host and process of the next rank, once it has begun
        self.beats = 0  # of this rank
        self.seen = 0  # of the next one
        self.over = threading.Event()
        for work in (self._beat, self._watch):
            threading.Thread(target=work, daemon=True, name=f"pulse{work.__name__}").start()

    def _beat(self) -> None:
        """A suspended process that holds the store does not answer: this thread waits then, and
        `_watch` detects it.
        """
        try:
            self.store.set(_where(self.rank), f"{socket.gethostname()} {os.getpid()}")
            self.place = self.store.get(_where(self.next)).decode()
            while not self.over.wait(self.every) and self.seen < OVER:
                self.store.add(_count(self.rank), 1)
                self.seen = self.store.add(_count(self.next), 0)
                self.beats += 1
            while not self.over.wait(self.every):
                self.store.add(_count(self.rank), 1)
        except RuntimeError:  # the store ended with its process: the launcher ends this one
            self.over.set()

    def _watch(self) -> None:
        seen, beats, silent = 0, 0, 0.0
        while not self.over.wait(self.every) and self.seen < OVER:
            waits_for_store = self.beats == beats and not self.watches_store
            silent = (
                0.0
                if self.seen != seen or waits_for_store or not self.place
                else silent + self.every
            )
            seen, beats = self.seen, self.beats
            if silent > self.patience:
                return self._end()

    def _end(self) -> None:
        host, process = self.place.rsplit(" ", 1)
        print(
            f"Rank {self.next} has given no sign for {self.patience:g} s (trainer.rank_timeout):"
            f" its process {process} on {host} is stopped or cut off. It is ended, and the run"
            " with it.",
            file=sys.stderr,
            flush=True,
        )
        if host != socket.gethostname():
            os._exit(1)
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)

    def stop(self) -> None:
        """This rank is done; the others stop watching it."""
        self.over.set()
        with suppress(RuntimeError):
            self.store.add(_count(self.rank), OVER)


def begin(trainer: Facts) -> Heartbeat | None:
    """The heartbeat of this process, started, if the run has several ranks and trainer.rank_timeout
    is not null.
    """
    patience = ranks.rank_timeout(trainer)
    count = ranks.count()
    return None if patience is None or count == 1 else Heartbeat(patience, ranks.rank(), count)


def _count(rank: int) -> str:
    return f"xformer/beats/{rank}"


def _where(rank: int) -> str:
    return f"xformer/process/{rank}"

"""Reading beside training: a thread takes a bounded number of items from an iterator before they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from ssl_hub.processes import LEFT_READING
from ssl_hub.stopping import Interrupted, deferred, is_noted

T = TypeVar("T")

_PATIENCE = 2.0  # seconds that close() waits for a read that is under way
_LOOK_UP = 0.5  # seconds after which one who waits for an item looks whether a signal has come meanwhile


class _End(NamedTuple):
    error: BaseException


class ReadAhead(Generic[T]):
    """The items of an iterator, in their order, taken from it by a thread of its own.

    At most ``most`` items are held at a time: those that are ahead, and those handed out that :meth:`release` has not
    been told of. What the iterator raises is raised here, after the items before it. Where ``gives_way``, waiting for
    an item ends with :class:`Interrupted` once a signal to stop has been noted.

    The thread starts with the first item that is asked for: after worker processes that are forked by then, which a
    lock that it holds would block for ever. It ends with :meth:`close`, at the next item. A read that takes longer is
    left to itself, and does not keep the process from exiting (a daemon; an executor's threads would be waited for): a
    command then leaves without Python's end.
    """

    def __init__(self, items: Iterator[T], most: int, *, gives_way: bool = False) -> None:
        self._items = items
        self._gives_way = gives_way
        self._room = threading.Semaphore(most)
        self._read: SimpleQueue[T | _End] = SimpleQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="read ahead", daemon=True)
            with deferred():  # the kernel may hand a signal to any thread that takes it: this one is born without
                self._thread.start()
        item = self._next()
        if isinstance(item, _End):
            self._closed = True
            raise item.error
        return item

    def _next(self) -> T | _End:
        while True:
            try:
                return self._read.get(timeout=_LOOK_UP)
            except Empty:
                if self._gives_way and is_noted():
                    raise Interrupted from None

    def release(self, count: int = 1) -> None:
        """So many of the items that were handed out are held no longer."""
        if count > 0:
            self._room.release(count)

    def close(self) -> None:
        """End the thread. What it has read and nobody has asked for is dropped."""
        self._closed = True
        self._room.release()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                self._thread.name = LEFT_READING

    def _run(self) -> None:
        try:
            while self._room.acquire() and not self._closed:
                self._read.put(next(self._items))
        except BaseException as error:  # also StopIteration: whatever it is, it is for the one who asks
            self._read.put(_End(error))
        finally:
            del self._items  # which closes the file that it reads

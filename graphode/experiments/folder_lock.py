"""A lock on a folder, so that one program at a time works there.

The operating system takes it back when its program ends, however it ends. The file is removed with
the lock; one that a killed program has left behind is locked by nobody.
"""

import errno
import os
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two programs apart
    fcntl = None

NAME = "lock"
# What a file system says that is mounted without locks, as some in networks are.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class FolderLock:
    """Held from `acquire` to `release`, or until it is forgotten.

    Args:
        folder: Which exists.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._free: weakref.finalize | None = None

    def acquire(self) -> bool:
        """Whether nobody else holds it; also where there are no locks."""
        if fcntl is None or (self._free is not None and self._free.alive):
            return True
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if error.errno in _NO_LOCKS:
                    self.path.unlink(missing_ok=True)
                    return True
                if isinstance(error, (BlockingIOError, PermissionError)):
                    return False
                raise
            if _is_file(handle, self.path):
                self._free = weakref.finalize(self, _remove, handle, self.path)
                return True
            os.close(handle)  # whoever had it removed it meanwhile

    def release(self) -> None:
        """Let others work there."""
        if self._free is not None:
            self._free()


def _is_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(handle: int, path: Path) -> None:
    try:
        # While it is still held: a file of that name is then nobody else's.
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)

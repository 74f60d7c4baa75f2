"""manifest.json: what makes files a checkpoint. Written last, synced, put in place by rename; what it names has been
read, hashed and synced before. It must never name what Hanse would refuse: then the manifest before stays."""
from __future__ import annotations

import hashlib
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Optional, Union

from .environment import NUMBER_MAX, ContractError

NAME = "manifest.json"
FILES_MAX, NAME_MAX, DEPTH_MAX, BYTES_MAX = 20000, 512, 8, 8 << 20  # as in connectors/checkpoint/checkpoint.h
BLOCK = 1 << 20

PathText = Union[str, "os.PathLike[str]"]
What = Union[PathText, tuple[PathText, int]]
"""A file or a folder below the checkpoint folder; with a number the first bytes of a file that goes on growing."""


@dataclass(frozen=True)
class File:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    step: int
    files: tuple[File, ...]

    def text(self) -> bytes:
        files = [{"name": f.name, "bytes": f.bytes, "sha256": f.sha256} for f in self.files]
        return (json.dumps({"step": self.step, "files": files}, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def read(folder: Path) -> Optional[Manifest]:
    """What the folder's manifest says; None when there is none."""
    try:
        said = json.loads((folder / NAME).read_bytes())
        return Manifest(said["step"], tuple(File(f["name"], f["bytes"], f["sha256"]) for f in said["files"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise ContractError(f"{folder / NAME} is no manifest ({e}): `hanse checkpoint verify {folder}` says what is wrong") from e


def _name_check(name: str) -> None:
    parts = name.split("/")
    if len(os.fsencode(name)) > NAME_MAX or len(parts) > DEPTH_MAX:
        raise ContractError(f'"{name:.100}" is longer than {NAME_MAX} bytes or deeper than {DEPTH_MAX} folders: save under a shorter name')
    if any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise ContractError(f"{name!r:.100} has a control character, or is no UTF-8: save under another name")
    if any(part in ("", ".", "..") for part in parts) or name == NAME:
        raise ContractError(f'"{name:.100}" is no name of a file below the checkpoint folder: name what was saved, relative to it')


def _relative(folder: Path, what: PathText) -> str:
    path = os.fspath(what)
    if os.path.isabs(path):
        path = os.path.relpath(path, folder)
    return path[2:].rstrip("/") if path.startswith("./") else path.rstrip("/")


def _expand(folder: Path, name: str, most: Optional[int], found: dict[str, Optional[int]]) -> None:
    _name_check(name)
    parts = name.split("/")
    for i in range(1, len(parts) + 1):
        if (folder / "/".join(parts[:i])).is_symlink():
            raise ContractError(f'"{name:.100}" leads through a link, which is not followed: save files themselves in {folder}')
    path = folder / name
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as e:
        raise ContractError(f'"{name:.100}" is not in {folder}: write files there first, then commit them') from e
    if stat.S_ISDIR(mode) and most is None:
        for entry in sorted(os.listdir(path)):
            if not entry.endswith(".tmp"):  # half written: nobody's
                _expand(folder, f"{name}/{entry}", None, found)
    elif not stat.S_ISREG(mode):
        raise ContractError(f'"{name:.100}" is no regular file: a checkpoint has files and folders only')
    elif found.setdefault(name, most) != most:
        raise ContractError(f'"{name:.100}" is named twice, with different lengths: name it once')


def expand(folder: Path, what: Iterable[What]) -> list[tuple[str, Optional[int]]]:
    """The files that are meant, each once, with the length that is to be committed (None: all of it)."""
    found: dict[str, Optional[int]] = {}
    for one in what:
        path, most = one if isinstance(one, tuple) else (one, None)
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= NUMBER_MAX):
            raise ContractError(f"{most!r:.40} is no number of bytes: give the length of {path} that is whole")
        _expand(folder, _relative(folder, path), most, found)
    if not 1 <= len(found) <= FILES_MAX:
        raise ContractError(f"a checkpoint has 1 to {FILES_MAX} files, and this one {len(found)}: name the files or the folder that was saved")
    return sorted(found.items())


def _hash_and_sync(folder: Path, name: str, most: Optional[int]) -> File:
    fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size if most is None else most
        digest, left = hashlib.sha256(), size
        while left:
            block = os.read(fd, min(left, BLOCK))
            if not block:
                raise ContractError(f"{folder / name} ended {left} bytes before the {size} that it should have: commit what is written")
            digest.update(block)
            left -= len(block)
        os.fsync(fd)
    finally:
        os.close(fd)
    return File(name, size, digest.hexdigest())


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def measure(folder: Path, step: int, what: Iterable[What]) -> Manifest:
    """Reads and syncs all that is named. Reading is done on several threads, as hashing needs no lock of Python's."""
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= NUMBER_MAX:
        raise ContractError(f"the step {step!r:.40} is no whole number from 0 to 2^53: commit the number of steps that are done, as an int")
    names = expand(folder, what)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1, len(names))) as pool:
        files = tuple(pool.map(lambda one: _hash_and_sync(folder, *one), names))
    for parent in sorted({folder.joinpath(*f.name.split("/")[:i]) for f in files for i in range(f.name.count("/") + 1)}, reverse=True):
        _sync_folder(parent)
    return Manifest(step, files)


def put(folder: Path, manifest: Manifest) -> None:
    """From here on the files are a checkpoint; until here the one before is."""
    text = manifest.text()
    if len(text) > BYTES_MAX:
        raise ContractError(f"the manifest is longer than {BYTES_MAX} bytes: save fewer files, or under shorter names")
    temporary = folder / f".{NAME}.tmp"
    with open(temporary, "wb") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, folder / NAME)
    _sync_folder(folder)

"""Images to start hanse-run in: a root folder of files, entered without being root where user namespaces are permitted.
What a container's runtime gives to each image is there: /proc and /dev/null."""
import os
import shutil
import subprocess
import sys

BINARY = os.environ["HANSE_RUN"]
SOURCES = os.path.dirname(os.path.abspath(__file__))
LOADER = {"musl": "/lib/ld-musl-x86_64.so.1", "glibc": "/lib64/ld-linux-x86-64.so.2"}


def skip(why):
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(77)


def namespaces(*more):
    """The command that begins a mount namespace of our own, in which we are root."""
    for options in (["-Urm", *more], ["-m", *more]):
        command = ["unshare", *options]
        if shutil.which("unshare") and subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return command
    skip("this machine lets nobody but root make namespaces, and we are not root")


class Image:
    def __init__(self, root):
        self.root = root
        for folder in ("proc", "dev", "store", "etc"):
            os.makedirs(os.path.join(root, folder))
        open(os.path.join(root, "dev/null"), "w", encoding="ascii").close()
        shutil.copy(BINARY, os.path.join(root, "hanse-run"))

    def path(self, *names):
        return os.path.join(self.root, *names)

    def copy(self, path):
        """A file of this machine, under its own name."""
        os.makedirs(self.path(os.path.dirname(path)[1:]), exist_ok=True)
        shutil.copy(os.path.realpath(path), self.path(path[1:]))

    def compile(self, source, compiler, *flags):
        subprocess.run([compiler, "-O1", "-o", self.path("program"), os.path.join(SOURCES, source), *flags], check=True)

    def command(self, *argv, proc=True, network=()):
        """Becomes that program within the image; its pid is that of the process that is started."""
        mounts = f"mount --bind /dev/null {self.root}/dev/null"
        if proc:
            mounts += f" && mount --rbind /proc {self.root}/proc"
        return [*namespaces(*network), "sh", "-c", f'PATH="$PATH:/usr/sbin:/sbin"; {mounts} && exec chroot {self.root} "$@"', "image", *argv]


def static(root):
    """Nothing but our binary and a static program."""
    image = Image(root)
    image.compile("saver.c", "cc", "-static")
    return image


def musl(root):
    """A program that is bound to musl, with its loader."""
    image = Image(root)
    image.compile("saver.c", "musl-gcc")
    image.copy(LOADER["musl"])
    return image


def glibc(root):
    """A program that is bound to the glibc of this machine, and no library but that."""
    image = Image(root)
    image.compile("saver.c", "cc")
    image.copy(LOADER["glibc"])
    libc = subprocess.run(["cc", "-print-file-name=libc.so.6"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    os.makedirs(image.path("lib"), exist_ok=True)
    shutil.copy(os.path.realpath(libc), image.path("lib/libc.so.6"))
    return image

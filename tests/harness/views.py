"""A folder that several hosts see, each through a FUSE view of its own: shared data, separate kernel locks."""
import os
import subprocess

from .wait import wait_until

UNCACHED = "direct_io,attr_timeout=0,entry_timeout=0,negative_timeout=0"
FOR_ME = ["--no-allow-other"] if os.geteuid() else []  # others may look only if /etc/fuse.conf says so


class Views:
    """data: the folder, views: where it is seen; all are made here."""

    def __init__(self, data, views):
        self.data, self.views = data, []
        os.mkdir(data)
        try:
            for view in views:
                os.mkdir(view)
                subprocess.run(["bindfs", *FOR_ME, "-o", UNCACHED, data, view], check=True)
                self.views.append(view)
        except BaseException:
            self.unmount()
            raise

    def unmount(self):
        """After all programs that have files open there have ended."""
        for view in self.views:
            wait_until(lambda: subprocess.run(["fusermount3", "-u", view], stderr=subprocess.DEVNULL).returncode == 0 or
                       not os.path.ismount(view), "the view is unmounted")

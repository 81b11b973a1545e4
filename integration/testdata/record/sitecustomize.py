"""Records every address that this interpreter connects a socket to, a line each, in the file named by MUSIC_CONNECTS."""
import os
import socket

path = os.environ.get("MUSIC_CONNECTS")

if path:
    connect = socket.socket.connect

    def noting(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            with open(path, "a", encoding="utf-8") as notes:
                notes.write(f"{address[0]}:{address[1]}\n")
        return connect(self, address)

    socket.socket.connect = noting

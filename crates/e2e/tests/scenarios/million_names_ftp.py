#!/usr/bin/env python3
# A server of FTP with a directory of a million names, not in their order. Prints its port.
import socket
import socketserver

COUNT = 1_000_000
FACTS = "type=file;size=1;modify=20200101000000;UNIX.mode=0644; %07d\r\n"


class Session(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text.encode() + b"\r\n")

    def handle(self):
        self.say("220 here")
        passive = None
        for line in self.rfile:
            verb = line.split()[0].decode().upper()
            if verb == "USER":
                self.say("331 and?")
            elif verb == "PASS":
                self.say("230 in")
            elif verb == "FEAT":
                self.say("211-Features:\r\n MLST type*;size*;modify*;\r\n REST STREAM\r\n211 End")
            elif verb == "PWD":
                self.say('257 "/" here')
            elif verb == "EPSV":
                passive = socket.create_server(("127.0.0.1", 0))
                self.say("229 ok (|||%d|)" % passive.getsockname()[1])
            elif verb == "MLST":
                self.say("250-it\r\n type=dir;modify=20200101000000; /d\r\n250 end")
            elif verb == "MLSD":
                data, _ = passive.accept()
                self.say("150 now")
                with data, data.makefile("wb") as out:
                    try:
                        for at in range(COUNT):
                            out.write((FACTS % (at * 7919 % COUNT)).encode())
                    except OSError:
                        pass
                self.say("226 all of it")
            elif verb in ("TYPE", "CWD"):
                self.say("200 ok")
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("550 no")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Session) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()

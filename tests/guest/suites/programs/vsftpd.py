# SPDX-License-Identifier: GPL-2.0-only
"""vsftpd, a sandboxed process for each connection, and data connections made by either end.
seccomp_sandbox kills the process for any socket except TCP, by the number in the call. A mapping
passes seccomp's check, the library does not."""

from lib.forms import ALL, form

SETTINGS = """
listen=YES
listen_address={host}
listen_port={port}
background=NO
anonymous_enable=YES
anon_root={folder}/files
anon_upload_enable=YES
anon_umask=022
write_enable=YES
no_anon_password=YES
connect_from_port_20=YES
ftp_username=ftp
secure_chroot_dir={folder}/empty
"""
SERVER = """
mkdir -p {folder}/files/new {folder}/empty && chown ftp {folder}/files/new
[ "$LD_PRELOAD" ] && sandbox=NO || sandbox=YES
exec vsftpd -oseccomp_sandbox=$sandbox {folder}/vsftpd.conf
"""
CLIENT = """
import ftplib, io, random
content, good = random.Random(1).randbytes(2_000_000), 0
for passive in (True, False):
    with ftplib.FTP() as ftp:
        ftp.connect("{host}", {port})
        ftp.login()
        ftp.set_pasv(passive)
        ftp.cwd("new")
        ftp.storbinary(f"STOR {passive}", io.BytesIO(content))
        back = []
        ftp.retrbinary(f"RETR {passive}", back.append)
        good += b"".join(back) == content
print(good, "came back")
"""

# A mapping that begins after the server also applies to data sockets that the server creates later.
form(needs=("vsftpd",), ways=ALL - {("mapped", "by_tcp")}, server=("sh", "{folder}/server"), client=("python3", "{folder}/client.py"),
     files={"vsftpd.conf": SETTINGS, "server": SERVER, "client.py": CLIENT}, says="2 came back", sent=4_000_000, received=4_000_000)

# Runs a command in a pseudo-terminal of its own, as a person would: 80 columns, 24 rows.
#
#   python3 weir_watch_terminal.py COMMAND...
#
# Reads lines from standard input: `keys HEX' presses these, `size ROWS COLUMNS' resizes, `mode' says whether the terminal is as a
# shell wants it. Writes `out HEX' for what the command prints, `mode sane' or `mode raw', and `exit N' when the command has ended, N negative for a
# signal. It goes on after that, to be asked for the mode, until its input ends.
import fcntl, os, pty, select, signal, struct, sys, termios

def resize(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

def say(text):
    sys.stdout.write(text + '\n')
    sys.stdout.flush()

master, slave = pty.openpty()
resize(24, 80)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in 0, 1, 2:
        os.dup2(slave, fd)
    os.execvp(sys.argv[1], sys.argv[1:])
say('pid %d' % child)
buffer, ended = b'', False
while True:
    ready, _, _ = select.select([0, master], [], [], 0.1)
    if master in ready:
        say('out ' + os.read(master, 65536).hex())
    if 0 in ready:
        data = os.read(0, 65536)
        if not data:
            break
        buffer += data
    while b'\n' in buffer:
        line, buffer = buffer.split(b'\n', 1)
        words = line.decode().split()
        if words[0] == 'keys':
            os.write(master, bytes.fromhex(words[1]))
        elif words[0] == 'size':
            resize(int(words[1]), int(words[2]))
        elif words[0] == 'mode':
            local = termios.tcgetattr(slave)[3]
            wanted = termios.ICANON | termios.ECHO | termios.ISIG
            say('mode ' + ('sane' if local & wanted == wanted else 'raw'))
    if not ended:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended = True
            say('exit %d' % os.waitstatus_to_exitcode(status))
if not ended:
    os.kill(child, signal.SIGKILL)

"""
Locks by the very commands that two libraries send which are in no registry of ours, and a connection that sends them. The scripts are ours; each
runs the same redis.call()s in the same order, on the same keys and values, as the library's own.

Jedis, redsync   SetParams (Jedis, commit 1184a24d798e, 3.x) puts "nx" before "px"; Mutex of redsync v4 with redigo does, too. Neither has a
                 script of its own for more than what the page of SET recommends: GET, compare, DEL.
Redisson         RedissonLock, RedissonBaseLock, LockPubSub and renewal/LockTask of commit 32d15768de4c (2026, a 4.x). One server, so
                 getPublishCommand() is PUBLISH: only its connection to a Redis Cluster ever looks for SPUBLISH.
Redisson 3.12    RedissonLock of commit 4339c99bd624 (2019): HSET instead of HINCRBY for the first lock, and no latch.
"""
import socket
import threading
import time
import uuid


class Connection:
    """One connection to a server on a Unix socket; one command at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.mutex = threading.Lock()

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def read(self):
        line = self.file.readline()
        if not line:
            raise OSError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest.decode()

    def __call__(self, *words):
        with self.mutex:
            self.send(*words)
            return self.read()


class Recipe:
    """SET NX PX, and scripts that compare: Jedis, redsync."""

    RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

    def __init__(self, path, key, ttl_ms, pause):
        self.redis, self.key, self.ttl_ms, self.pause = Connection(path), key, ttl_ms, pause
        self.token = uuid.uuid4().hex

    def attempt(self):
        return self.redis("SET", self.key, self.token, "nx", "px", self.ttl_ms) == "OK"

    def lock(self):
        while not self.attempt():
            time.sleep(self.pause)

    def unlock(self):
        return self.redis("EVAL", self.RELEASE, 1, self.key, self.token) == 1


class Redisson:
    """RLock: a hash of owner -> count, a channel, and a watchdog that renews every third of its time."""

    TAKE = """
        local free = redis.call('exists', KEYS[1]) == 0
        if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return nil
        end
        return redis.call('pttl', KEYS[1])"""
    RENEW = """
        local found = {}
        for i, key in ipairs(KEYS) do
            found[i] = redis.call('hexists', key, ARGV[i + 1])
            if found[i] == 1 then
                redis.call('pexpire', key, ARGV[1])
            end
        end
        return found"""
    # KEYS: lock, channel, latch. ARGV: message, time, owner, how to publish, time of the latch
    FREE = """
        local before = redis.call('get', KEYS[3])
        if before then
            return tonumber(before)
        end
        if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
            return nil
        end
        if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
            redis.call('set', KEYS[3], 0, 'px', ARGV[5])
            return 0
        end
        redis.call('del', KEYS[1])
        redis.call(ARGV[4], KEYS[2], ARGV[1])
        redis.call('set', KEYS[3], 1, 'px', ARGV[5])
        return 1"""
    FORCE = """
        if redis.call('del', KEYS[1]) == 1 then
            redis.call(ARGV[2], KEYS[2], ARGV[1])
            return 1
        end
        return 0"""
    UNLOCKED = "0"  # LockPubSub.UNLOCK_MESSAGE, as LongCodec writes it

    def __init__(self, path, key, ttl_ms, pause):
        del pause  # it is woken by the channel
        self.path, self.redis, self.key, self.ttl_ms = path, Connection(path), key, ttl_ms
        self.owner = f"{uuid.uuid4()}:1"  # of the client, and of the thread
        self.held = 0
        threading.Thread(target=self.renew, daemon=True).start()

    def prefixed(self, prefix):
        """RedissonObject.prefixName()"""
        return f"{prefix}:{self.key}" if "{" in self.key else f"{prefix}:{{{self.key}}}"

    def channel(self):
        return self.prefixed("redisson_lock__channel")

    def take(self):
        """None: it has the lock. Else for how many ms another one has it."""
        return self.redis("EVAL", self.TAKE, 1, self.key, self.ttl_ms, self.owner)

    def attempt(self):
        taken = self.take() is None
        self.held += taken
        return taken

    def lock(self):
        if self.attempt():
            return
        channel = Connection(self.path)
        channel("SUBSCRIBE", self.channel())
        while True:
            left = self.take()
            if left is None:
                break
            # A latch in Redisson: only a message, or the end of that time, ends the wait. 0: the key is in its last millisecond.
            channel.socket.settimeout(max(left, 1) / 1000 if left >= 0 else None)
            try:
                channel.read()
            except TimeoutError:
                channel = Connection(self.path)
                channel("SUBSCRIBE", self.channel())
        self.held += 1

    def unlock(self):
        latch = self.prefixed("redisson_unlock_latch") + ":" + uuid.uuid4().hex
        done = self.redis("EVAL", self.FREE, 3, self.key, self.channel(), latch, self.UNLOCKED, self.ttl_ms, self.owner, "PUBLISH", 13500)
        self.redis("DEL", latch)
        self.held -= 1
        return done is not None

    def force(self):
        return self.redis("EVAL", self.FORCE, 2, self.key, self.channel(), self.UNLOCKED, "PUBLISH") == 1

    def renew(self):
        while True:
            time.sleep(self.ttl_ms / 3000)
            if self.held > 0:
                self.redis("EVAL", self.RENEW, 1, self.key, self.ttl_ms, self.owner)


class Redisson312(Redisson):
    """As in 2019."""

    TAKE = """
        if redis.call('exists', KEYS[1]) == 0 then
            redis.call('hset', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return nil
        end
        if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return nil
        end
        return redis.call('pttl', KEYS[1])"""
    FREE = """
        if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
            return nil
        end
        if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
            return 0
        end
        redis.call('del', KEYS[1])
        redis.call('publish', KEYS[2], ARGV[1])
        return 1"""

    def unlock(self):
        done = self.redis("EVAL", self.FREE, 2, self.key, self.channel(), self.UNLOCKED, self.ttl_ms, self.owner)
        self.held -= 1
        return done is not None

"""What a job's standard error says before it is killed, for each user of the keeper and the job."""
import os
import subprocess

import pytest
from harness import wait_until


@pytest.mark.parametrize("ground", ["tmpfs"], indirect=True)
def test_a_lost_lock_is_said_on_standard_error(sides, redis):
    a = sides[0].host
    agent = sides[0].agent("f")  # it makes the file
    process = subprocess.Popen([*a.inside, *sides[0].by(0), "flock", a.path("f"), "sh", "-c", "echo ok; sleep 1000; :"], env=a.env(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    assert process.stdout.readline() == "ok\n"
    redis.stop()
    wait_until(lambda: a.status()["leases"][0]["state"] == "unsure", "the deadline passes", 20)
    redis.start()
    os.chmod(redis.socket, 0o777)  # it is another one
    words = process.communicate(timeout=20)[1]
    assert words.count("the lock was lost") == 1, words
    assert words.startswith(f"dflock: {a.path('f')}: the lock was lost: the store lost its memory"), words
    assert agent.do("flock 0 un") == "ok"  # it had no lock, and lives

"""What tests with processes share: a private redis-server, hosts (keepers with files of their own), agents."""
from .wait import wait_until, Deadline
from .redis import Redis
from .host import Host, Agent, BUILD
from .job import Job
from .nodes import Nodes
from .proxy import Proxy

__all__ = ["Agent", "BUILD", "Deadline", "Host", "Job", "Nodes", "Proxy", "Redis", "wait_until"]

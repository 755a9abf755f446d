"""What tests with processes share: a private redis-server, hosts (keepers with files of their own), agents."""
from .wait import wait_until, Deadline
from .apart import Apart
from .certificates import Authority
from .cutter import Cutter
from .redis import Redis
from .host import Host, Agent, BUILD
from .clock import Clock
from .cluster import Cluster
from .files import bytes_of, text_of, write_text
from .job import THREADS, Job
from .network import Network
from .nodes import Nodes
from .postgresql import Postgresql
from .proxy import Proxy
from .views import Views
from .zookeeper import Zookeeper

__all__ = ["Agent", "Apart", "Authority", "BUILD", "Clock", "Cluster", "Cutter", "Deadline", "Host", "Job", "Network", "Nodes", "Postgresql", "Proxy",
           "Redis", "THREADS", "Views", "Zookeeper", "bytes_of", "text_of", "wait_until", "write_text"]

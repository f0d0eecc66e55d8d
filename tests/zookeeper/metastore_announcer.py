"""A process that announces and claims something in the metastore, and then waits to be killed."""

import sys
import time

from holdfast.push.metastore.zookeeper import ZookeeperMetastore

if __name__ == "__main__":
    port, cluster = sys.argv[1:]
    store = ZookeeperMetastore(f"127.0.0.1:{port}", "/below", cluster, session_timeout_s=2.0)
    store.claim("leader", "another")
    store.announce("/brokers/b1", b"17")
    sys.stdout.write("announced\n")
    sys.stdout.flush()
    time.sleep(600)

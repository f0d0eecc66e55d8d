"""An S3 server that answers one request after the other, as if conditional ones were decided at once.

moto's own server answers in threads and looks at a condition before it acts, so
that two requests may both meet it; S3 never lets them.
"""

import sys

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)

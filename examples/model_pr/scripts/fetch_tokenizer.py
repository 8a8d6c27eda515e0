"""Fetches the tokenizer from a mirror that takes a moment to come up; retries, as it should. fetch_tokenizer.py"""

import http.server
import logging
import threading
import time
import traceback
import urllib.request

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler, bind_and_activate=False)
server.server_bind()  # bound, but it does not listen yet: a connection is refused
url = f"http://127.0.0.1:{server.server_address[1]}/configs/qwen3_pt.yaml"


def come_up_late():
    time.sleep(1.5)
    server.server_activate()
    server.serve_forever()


threading.Thread(target=come_up_late, daemon=True).start()
for attempt in range(1, 6):
    try:
        body = urllib.request.urlopen(url, timeout=2).read()
        break
    except OSError:
        logging.error("attempt %d of 5 failed, retrying", attempt)
        traceback.print_exc()
        time.sleep(0.7)
else:
    raise SystemExit("no mirror answered")
logging.info("fetched %d bytes after %d attempts", len(body), attempt)

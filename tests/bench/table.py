"""Prints the README's table from what run.sh wrote.
  python table.py build/bench/bench.json"""
import json
import sys

ROWS = [
    ("null call, p50", "call.null.p50_us", "us"),
    ("null call, same core, p50", "call.null_same_core.p50_us", "us"),
    ("null call, two cores, p50", "call.null_two_cores.p50_us", "us"),
    ("call that raises, p50", "call.error.p50_us", "us"),
    ("64 requests sent ahead", "call.pipelined64.per_s", "calls/s"),
    ("upload 256 MB", "upload.256M.mb_per_s", "MB/s"),
    ("download 256 MB", "download.256M.mb_per_s", "MB/s"),
    ("copy to a tensor, 1 MB", "copy_to.1M.mb_per_s", "MB/s"),
    ("copy from a tensor, 1 MB", "copy_from.1M.mb_per_s", "MB/s"),
    ("copy to a tensor, 256 MB", "copy_to.256M.mb_per_s", "MB/s"),
    ("copy from a tensor, 256 MB", "copy_from.256M.mb_per_s", "MB/s"),
    ("memory on top, upload of 256 MB", "memory.upload_256M_peak_mb", "MB"),
    ("memory on top, download of 256 MB", "memory.download_256M_peak_mb", "MB"),
    ("connect to first result, p50", "session.start.p50_us", "us"),
    ("sessions one after the other", "session.cycles_per_s", "/s"),
    ("start until it listens", "server.start_to_listen_ms", "ms"),
    ("idle memory, all processes", "memory.idle_pss_mb", "MB"),
    ("tuner cycles, stock client", "tuner.cycles_per_min", "/min"),
    ("tuner: wait for the board, p50", "tuner.request.p50_ms", "ms"),
]


def show(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main():
    data = json.load(open(sys.argv[1]))
    summary = data["summary"]
    names = [n for n in ("ours", "stock-server-our-tracker", "stock-python", "floor")
             if any(n in row for row in summary.values())]
    print("| figure | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))
    for title, key, unit in ROWS:
        row = summary.get(key, {})
        cells = [show(row[n]["median"]) if n in row else "" for n in names]
        print(f"| {title}, {unit} | " + " | ".join(cells) + " |")
    load = sorted(r["load"] for r in data["runs"])
    print(f"\n{data['env']['cpus']} cores, Linux {data['env']['kernel']}, load average during the run "
          f"{load[0]:.1f} to {load[-1]:.1f}")


if __name__ == "__main__":
    main()

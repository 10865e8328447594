import os,time,resource
def mark(what):
    extra=""
    if what.startswith("sink"):
        import subprocess
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    st=open(f"/proc/{p}/stat").read().rsplit(")",1)[1].split()
                    nm=open(f"/proc/{p}/comm").read().strip()
                    if nm=="java": extra=f"java {st[7]} cpu {int(st[11])+int(st[12])}"
                except OSError: pass
    with open("/tmp/q/marks.log","a") as f: f.write(f"{time.time():.4f} {os.getpid()} {time.process_time():.4f} {what} {resource.getrusage(0).ru_minflt} {extra}\n")

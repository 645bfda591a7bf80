"""What tests of pages share: packs read back, well-formedness, and pages in headless Chromium."""

import base64
import json
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 390)


def data_of(page):
    """The data that a page's script reads."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(timeline, gpu):
    """A gpu of a timeline as the script reads it: rows of tasks and waits with absolute names."""
    pack = zlib.decompress(base64.b64decode(timeline["packs"][timeline["gpus"][gpu]]))
    columns, count = json.loads(pack), len(timeline["gpus"])

    def absolute(name):
        return re.sub(r"\b([gs]|gpu )\+(\d+)", lambda m: f"{m[1]}{(int(m[2]) + gpu) % count}", name)

    def place(dep):
        return ((gpu + dep[0]) % count, dep[1]) if isinstance(dep, list) else (gpu, dep)

    tasks, now = [], 0
    for i, delta in enumerate(columns["start"]):
        now += delta
        tasks.append(
            {
                "id": absolute(columns["id"][i]),
                "lane": columns["lanes"][columns["lane"][i]],
                "start": now,
                "end": now + columns["time"][i],
                "deps": [place(dep) for dep in columns["deps"][i]],
                "what": absolute(columns["words"][columns["what"][i]]),
            }
        )
    waits = [
        {"end": wait[3], "delayed": wait[4], "last": None if wait[5] is None else place(wait[5])}
        for wait in columns["waits"]
    ]
    return tasks, waits


class Tags(HTMLParser):
    """Tags that are never closed or closed twice, and ids that occur twice."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, _, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def check_page(page):
    """A page that needs nothing else and is well-formed."""
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert "mathdefault" not in page
    assert len(page.encode()) < 5 * 10**6
    tags = Tags()
    tags.feed(page)
    assert not tags.wrong
    assert not tags.open
    assert len(tags.ids) == len(set(tags.ids))


HEAD = """<script>
window.problems = [];
window.addEventListener("error", (event) => window.problems.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => window.problems.push(String(event.reason)));
window.addEventListener("securitypolicyviolation",
  (event) => window.problems.push(event.violatedDirective));
</script>"""
# acts as a person would, and tells the frame around it what was seen
END = """<script>
{
  // keys of a column after one and after two clicks on its header
  const sorted = (table, column) => {
    const keys = () => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.key);
    const header = table.tHead.rows[0].cells[column];
    const press = () => { header.querySelector("button").click(); return keys(); };
    return { once: press(), said: header.getAttribute("aria-sort"), twice: press(),
      number: table.tBodies[0].rows[0].cells[column].classList.contains("number") };
  };
  const pause = () => new Promise((go) => setTimeout(go, 10));
  const until = async (holds) => { while (!holds()) { await pause(); } };
  const point = (on, x, y) => on.dispatchEvent(
    new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
  const act = async () => { %s };
  act().catch((error) => ({ failed: String(error) })).then((found) => window.parent.postMessage(
    JSON.stringify({ name: window.name, found, problems: window.problems, width: window.innerWidth,
      wide: document.documentElement.scrollWidth }), "*"));
}
</script>"""
OUTER = """<!DOCTYPE html><pre id="probe"></pre><script>
const seen = [];
window.addEventListener("message", (event) => {
  seen.push(JSON.parse(event.data));
  document.getElementById("probe").textContent = JSON.stringify(seen);
});
</script>"""
# what every page must stand: each table sorts by each column, each mark says what it is
TABLES_AND_MARKS = """
  const tables = [...document.querySelectorAll("table.sortable")].map((table) => ({ id: table.id,
    columns: [...table.tHead.rows[0].cells].map((_, column) => sorted(table, column)) }));
  const tips = [];
  for (const figure of document.querySelectorAll("figure")) {
    const mark = figure.querySelector("[data-tip]");
    if (!mark) { continue; }
    const box = mark.getBoundingClientRect();
    point(figure, (box.left + box.right) / 2, (box.top + box.bottom) / 2);
    const all = [...figure.querySelectorAll("[data-tip]")].map((other) => other.dataset.tip);
    tips.push({ said: figure.querySelector(".tip").textContent, all });
  }
  return { tables, tips };
"""


def look(folder, pages, act):
    """Open pages at both widths in one browser; what ``act`` returns, by name and width.

    Windows of Chromium are at least 500 px wide, frames are as wide as asked for.
    """
    frames = []
    for number, (name, page) in enumerate(pages.items()):
        text = page.replace("<title>", HEAD + "<title>", 1).replace("</body>", END % act + "</body>")
        (folder / f"{number}.html").write_text(text)
        frames += [
            f'<iframe name="{name} {width}" src="{number}.html" '
            f'style="border: 0; width: {width}px; height: 800px"></iframe>'
            for width in WIDTHS
        ]
    outer = folder / "outer.html"
    outer.write_text(OUTER + "".join(frames))
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'user'}",
         "--window-size=1400,900", "--enable-logging=stderr", "--virtual-time-budget=20000",
         "--dump-dom", outer.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    text = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)[1]
    seen = json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    found = {}
    for one in seen:
        name, width = one["name"].rsplit(" ", 1)
        assert one["problems"] == [], one
        assert one["width"] == int(width)
        assert one["wide"] <= one["width"], f"{name} is wider than {width} px"
        assert "failed" not in one["found"], one
        found[name, int(width)] = one["found"]
    assert len(found) == len(frames), "a page said nothing"
    return found


def check_sorted(columns):
    """Both orders of every column, numbers as numbers."""
    for column in columns:
        once, twice = column["once"], column["twice"]
        if column["number"]:
            once, twice = ([float(key) for key in keys] for keys in (once, twice))
        assert once == sorted(once)
        assert twice == sorted(once, reverse=True)
        assert column["said"] == "ascending"

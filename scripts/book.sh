#!/usr/bin/env bash
# Builds the book for users into target/book, and checks every link between its pages and to their parts. docs/SUMMARY.md lists the pages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/tools.sh mdbook
rm -rf target/book target/book-src
# Pages that the contents do not list (decisions, figures, the kubelet's cases) stay in the repository; links to them become their paths.
python3 - docs target/book-src <<'PY'
import os, re, shutil, sys

docs, book = sys.argv[1:]
with open(os.path.join(docs, "SUMMARY.md")) as text:
    pages = {"SUMMARY.md", *re.findall(r"\]\(([^)]+\.md)\)", text.read())}

def in_repository(page, text, target):
    """The text in place of a link from a page, or None if the link stays."""
    path = os.path.normpath(os.path.join(os.path.dirname(page), target.split("#")[0]))
    if "://" in target or not path.endswith(".md") or path in pages:
        return None
    if not os.path.isfile(os.path.join(docs, path)):
        sys.exit(f"book: {page}: the link {target} leads nowhere")
    path = f"`{os.path.normpath(os.path.join(docs, path))}`"
    return path if text == os.path.basename(target) else f"{text} ({path})"

for page in sorted(pages):
    kept, fenced = [], False
    with open(os.path.join(docs, page)) as text:
        for line in text:
            fenced ^= line.lstrip().startswith("```")
            if not fenced:
                line = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda link: in_repository(page, *link.groups()) or link[0], line)
            kept.append(line)
    os.makedirs(os.path.dirname(os.path.join(book, page)), exist_ok=True)
    with open(os.path.join(book, page), "w") as text:
        text.write("".join(kept))
for name in os.listdir(docs):
    if name.endswith((".svg", ".json")):
        shutil.copy(os.path.join(docs, name), book)
words = sum(len(open(os.path.join(book, page)).read().split()) for page in pages)
print(f"book: {words} words in {len(pages) - 1} pages")
PY
target/tools/bin/mdbook build 2>&1 | grep -vE ' INFO |\[INFO\]' || true
[ -s target/book/index.html ] || { echo "book: mdbook made nothing" >&2; exit 1; }

python3 - target/book <<'PY'
import html.parser, os, sys, urllib.parse

book = sys.argv[1]
pages, links = {}, []

class Page(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.parts.add(attributes.get("id"))
        target = attributes.get("href" if tag in ("a", "link") else "src")
        if target:
            links.append((self.name, target))

for directory, _, files in os.walk(book):
    for file in files:
        name = os.path.relpath(os.path.join(directory, file), book)
        pages[name] = None
        # The page of all pages says everything once more, and the table of contents is on each.
        if file.endswith(".html") and name not in ("print.html", "toc.html", "404.html"):
            page = Page()
            page.name, page.parts = name, set()
            with open(os.path.join(directory, file)) as text:
                page.feed(text.read())
            pages[name] = page.parts

broken = 0
for page, target in links:
    url = urllib.parse.urlsplit(target)
    if url.scheme or url.netloc:
        continue
    path = os.path.normpath(os.path.join(os.path.dirname(page), urllib.parse.unquote(url.path))) if url.path else page
    path = os.path.join(path, "index.html") if os.path.isdir(os.path.join(book, path)) else path
    part = urllib.parse.unquote(url.fragment)
    if path not in pages or (part and pages[path] is not None and part not in pages[path]):
        broken += 1
        print(f"book: {page}: the link {target} leads nowhere", file=sys.stderr)
count = sum(parts is not None for parts in pages.values())
print(f"book: {count} pages, {len(links)} links, {broken} of them broken")
sys.exit(broken > 0 or count < 20)
PY

// Keeps the page up to date: replaces the parts that the server reports as changed. A hidden page sends no requests.
"use strict";
(() => {
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  let source = null;
  let retry = 0;
  let paused = false;

  const say = (text) => {
    if (state.textContent !== text) state.textContent = text;
    state.className = text === "Live" ? "on" : "off";
  };

  // Makes `from` what `to` is, and keeps what stays the same: the focus, a selection, an open table, where somebody scrolled to.
  const morph = (from, to) => {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) return void from.replaceWith(to);
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    const keyed = new Map();
    for (const child of from.children) {
      if (child.dataset?.key) keyed.set(child.dataset.key, child);
    }
    let at = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = wanted.dataset?.key;
      const old = key ? keyed.get(key) : at?.dataset?.key ? null : at;
      if (!old) {
        from.insertBefore(wanted, at);
        continue;
      }
      keyed.delete(key);
      if (old === at) at = at.nextSibling;
      else from.insertBefore(old, at);
      morph(old, wanted);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const replace = ({ id, html }) => {
    const part = document.getElementById(id);
    const template = document.createElement("template");
    template.innerHTML = html;
    const wanted = template.content.firstElementChild;
    if (part && wanted) morph(part, document.importNode(wanted, true));
    const title = wanted?.dataset.title;
    if (title && document.title !== title) document.title = title;
  };

  const close = () => {
    source?.close();
    source = null;
    clearTimeout(retry);
  };

  const open = () => {
    close();
    source = new EventSource("/live" + location.search);
    source.onmessage = ({ data }) => {
      const { version, parts } = JSON.parse(data);
      // The program behind the page is another one by now.
      if (version !== document.body.dataset.version) return void location.reload();
      parts.forEach(replace);
      say("Live");
    };
    source.onerror = () => {
      say("Reconnecting…");
      // A refusal ends the source for good: it is asked for again later.
      if (source?.readyState === EventSource.CLOSED) {
        close();
        retry = setTimeout(open, 5000);
      }
    };
  };

  const settle = () => {
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused && !document.hidden) return open();
    close();
    say("Paused");
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    settle();
  });
  document.addEventListener("visibilitychange", settle);
  // A page that is left holds no connection, and one that comes back from the browser's memory has one again.
  addEventListener("pagehide", close);
  addEventListener("pageshow", ({ persisted }) => persisted && settle());
  // A link to a folded section opens it.
  const unfold = () => {
    const section = document.getElementById(location.hash.slice(1));
    section?.querySelector(":scope > details")?.setAttribute("open", "");
  };
  addEventListener("hashchange", unfold);
  settle();
})();

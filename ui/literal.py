"""What a person typed, as Markdown that a browser shows exactly as it was typed.

The chat shows every message as Markdown, which is for answers. Knows nothing of components. Plain
words stay as they are; anything else becomes the body of a code fence that nothing in it can
close. `typed(literal(text)) == text`, and the same for what the page's edit box hands back.
"""

from __future__ import annotations

import re

# Tells our fence from one that somebody typed: invisible, and no part of the fence's meaning.
MARK = "\ufeff"
_FENCE = re.compile(f"~{{3,}}{MARK}\n")
# A line in which Markdown, HTML and link detection find nothing: letters, digits, single spaces,
# and punctuation without a meaning to them. It begins with a letter, so it is no list either.
_PLAIN = re.compile(r"[^\W\d_](?:[^\W_]|[,;'\"()?!]|[.:](?= |$)| (?! |$))*")

# Gradio puts the Markdown itself into its edit box and onto the clipboard.
SCRIPT = r"""() => {
  const fence = /^~{3,}\uFEFF\n/;
  const typed = (text) => text.replace(fence, "");
  new MutationObserver(() => {
    for (const box of document.querySelectorAll("#tp-chat .edit-textarea"))
      if (fence.test(box.value)) {
        box.value = typed(box.value);
        box.dispatchEvent(new Event("input", { bubbles: true }));
      }
  }).observe(document.querySelector("#tp-chat"), { childList: true, subtree: true });
  const clipboard = navigator.clipboard; // absent where the page is not from this machine
  if (clipboard) {
    const write = clipboard.writeText.bind(clipboard);
    clipboard.writeText = (text) => write(typed(text));
  }
  document.addEventListener("copy", (event) => {
    if (!fence.test(event.target.value ?? "")) return;
    event.clipboardData.setData("text/plain", typed(event.target.value));
    event.preventDefault();
  });
}"""


def literal(text: str) -> str:
    """Markdown that shows `text`, markup and spaces included."""
    if _PLAIN.fullmatch(text):
        return text
    longest = max(map(len, re.findall("~+", text)), default=0)
    return f"{'~' * max(3, longest + 1)}{MARK}\n{text}"


def typed(markdown: str) -> str:
    """The text that `literal` was given; text without its fence is returned as it is."""
    fence = _FENCE.match(markdown)
    return markdown[fence.end() :] if fence else markdown

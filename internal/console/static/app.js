// What the pages do beside htmx: say when the daemon is gone.
"use strict";
(function () {
  const gone = document.getElementById("gone");
  const moving = document.getElementById("moving");
  const stream = document.getElementById("stream");
  if (!stream) return;
  let last = new Date();
  document.body.addEventListener("htmx:sseOpen", function () {
    gone.hidden = true;
    if (moving) moving.hidden = false;
  });
  document.body.addEventListener("htmx:sseMessage", function () { last = new Date(); });
  document.body.addEventListener("htmx:sseError", function () {
    document.getElementById("gone-at").textContent = last.toLocaleTimeString();
    gone.hidden = false;
    if (moving) moving.hidden = true;
  });
})();

"use strict";
const state = document.getElementById("state");
new EventSource("/events").onmessage = (event) => {
  state.textContent = JSON.stringify(JSON.parse(event.data), null, 2);
};

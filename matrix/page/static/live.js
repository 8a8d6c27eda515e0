// Keeps the page of a run that goes on up to date, without losing the reader's place.
'use strict'
const main = document.querySelector('main[data-going="true"]')
if (main) {
  const look = async () => {
    try {
      const answer = await fetch(location.href)
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main')
      if (next && next.innerHTML !== main.innerHTML && !main.contains(document.activeElement)) main.innerHTML = next.innerHTML
      if (next && next.dataset.going === 'true') setTimeout(look, 3000)
    } catch {
      setTimeout(look, 10000)
    }
  }
  setTimeout(look, 3000)
}

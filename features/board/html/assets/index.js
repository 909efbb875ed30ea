// TensorBoard imports this module in the tab's frame and calls render(): the frame then shows our
// own page, which has a content security policy of its own.
export function render() {
  window.location.replace(new URL("page", import.meta.url));
}

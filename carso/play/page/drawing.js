// A small grey drawing, by pointer or by keyboard, as bytes.

const BRUSH = 1.3; // pixels of the image

export class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.cursor = null;
    this.resize(28, 28);
    canvas.addEventListener("pointerdown", (event) => this.follow(event));
    canvas.addEventListener("pointermove", (event) => event.buttons && this.follow(event));
    canvas.addEventListener("keydown", (event) => this.typed(event));
    canvas.addEventListener("blur", () => { this.cursor = null; this.show(); });
  }

  resize(height, width) {
    if (this.pixels && this.height === height && this.width === width) return;
    [this.height, this.width] = [height, width];
    this.clear();
  }

  clear() {
    this.pixels = new Uint8Array(this.height * this.width);
    [this.canvas.width, this.canvas.height] = [this.width, this.height];
    this.show();
  }

  follow(event) {
    const box = this.canvas.getBoundingClientRect();
    this.paint(((event.clientX - box.left) / box.width) * this.width, ((event.clientY - box.top) / box.height) * this.height);
  }

  typed(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const [x, y] = this.cursor ?? [this.width / 2, this.height / 2];
    if (moves[event.key]) {
      const [dx, dy] = moves[event.key];
      this.cursor = [Math.min(this.width - 1, Math.max(0, x + dx)), Math.min(this.height - 1, Math.max(0, y + dy))];
      this.show();
    } else if (event.key === " ") {
      this.cursor = [x, y];
      this.paint(x, y);
    } else return;
    event.preventDefault();
  }

  paint(x, y) {
    for (let row = 0; row < this.height; row++) {
      for (let column = 0; column < this.width; column++) {
        const away = Math.hypot(column + 0.5 - x, row + 0.5 - y);
        const ink = 255 * Math.min(1, Math.max(0, BRUSH + 0.5 - away));
        const place = row * this.width + column;
        this.pixels[place] = Math.max(this.pixels[place], ink);
      }
    }
    this.show();
  }

  show() {
    const context = this.canvas.getContext("2d");
    const shown = context.createImageData(this.width, this.height);
    this.pixels.forEach((value, i) => shown.data.set([value, value, value, 255], 4 * i));
    if (this.cursor) {
      const [x, y] = this.cursor.map(Math.floor);
      shown.data.set([200, 60, 40, 255], 4 * (y * this.width + x));
    }
    context.putImageData(shown, 0, 0);
  }

  get base64() {
    return btoa(String.fromCharCode(...this.pixels));
  }
}

/** The Kuramoto model on a circle and on a sphere, as `capsnet.oscillators` computes it. Pure functions on arrays. */

/** The inverse of the normal distribution's function (Acklam's approximation, refined once to full precision). */
export function normalQuantile(share) {
  const a = [
    -39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716, 2.506628277459239,
  ];
  const b = [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572];
  const c = [
    -0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
    2.938163982698783,
  ];
  const d = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
  const horner = (numbers, x) => numbers.reduce((sum, number) => sum * x + number, 0);
  if (share > 0.5) return -normalQuantile(1 - share);
  let x;
  if (share < 0.02425) {
    const q = Math.sqrt(-2 * Math.log(share));
    x = horner(c, q) / (horner(d, q) * q + 1);
  } else {
    const q = share - 0.5;
    x = (horner(a, q * q) * q) / (horner(b, q * q) * q * q + 1);
  }
  const error = 0.5 * erfc(-x / Math.SQRT2) - share;
  const step = error * Math.sqrt(2 * Math.PI) * Math.exp((x * x) / 2);
  return x - step / (1 + (x * step) / 2);
}

/** The complementary error function: a series near 0, a continued fraction beyond. */
function erfc(x) {
  if (x < 0) return 2 - erfc(-x);
  if (x < 2.5) {
    let [term, sum] = [x, x];
    for (let n = 1; n < 80; n += 1) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n -= 1) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}

/** `count` frequencies at evenly spaced quantiles of a normal distribution. */
export const frequencies = (count, deviation) =>
  Float64Array.from({ length: count }, (_, n) => deviation * normalQuantile((n + 0.5) / count));

/** K_c = 2 / (pi g(0)): the coupling at which order begins on a circle. */
export const criticalCoupling = (deviation) => (2 * deviation * Math.sqrt(2 * Math.PI)) / Math.PI;

/** The order r of infinitely many oscillators on a circle: 0 up to the critical coupling. */
export function lockedOrder(coupling, deviation) {
  if (coupling <= criticalCoupling(deviation)) return 0;
  const COUNT = Math.ceil(32 + (8 * coupling) / deviation); // the integrand is periodic: few points are exact
  const integral = (r) => {
    let sum = 0;
    for (let n = 0; n < COUNT; n += 1) {
      const t = ((n + 0.5) / COUNT) * Math.PI - Math.PI / 2;
      const omega = (coupling * r * Math.sin(t)) / deviation;
      sum += Math.cos(t) ** 2 * Math.exp(-0.5 * omega * omega);
    }
    return ((sum / COUNT) * Math.PI) / (deviation * Math.sqrt(2 * Math.PI));
  };
  let [low, high] = [0, 1];
  for (let n = 0; n < 26; n += 1) {
    const r = (low + high) / 2;
    if (coupling * integral(r) > 1) low = r;
    else high = r;
  }
  return (low + high) / 2;
}

/** One step of Runge and Kutta's fourth-order method, in place. Every oscillator sees only the mean of all. */
export function stepCircle(theta, omega, coupling, dt) {
  const N = theta.length;
  const velocity = (phases) => {
    let [cosine, sine] = [0, 0];
    for (let n = 0; n < N; n += 1) {
      cosine += Math.cos(phases[n]);
      sine += Math.sin(phases[n]);
    }
    const [c, s] = [(coupling * cosine) / N, (coupling * sine) / N];
    return Float64Array.from(phases, (phase, n) => omega[n] + s * Math.cos(phase) - c * Math.sin(phase));
  };
  const moved = (speed, by) => Float64Array.from(theta, (phase, n) => phase + by * speed[n]);
  const k1 = velocity(theta);
  const k2 = velocity(moved(k1, 0.5 * dt));
  const k3 = velocity(moved(k2, 0.5 * dt));
  const k4 = velocity(moved(k3, dt));
  for (let n = 0; n < N; n += 1) theta[n] += (dt / 6) * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]);
}

/**
 * One step on the sphere, in place: unit(x + dt (Omega x + tangent_x(K mean))). `x` holds three numbers per oscillator,
 * `rates` those of Omega above its diagonal.
 */
export function stepSphere(x, rates, coupling, dt) {
  const [mx, my, mz] = mean(x, 3).map((value) => coupling * value);
  for (let n = 0; n < x.length; n += 3) {
    const [a, b, c] = [x[n], x[n + 1], x[n + 2]];
    const [p, q, r] = [rates[n], rates[n + 1], rates[n + 2]]; // Omega_xy, Omega_xz, Omega_yz
    const along = a * mx + b * my + c * mz;
    const moved = [
      a + dt * (mx - along * a - p * b - q * c), b + dt * (my - along * b + p * a - r * c),
      c + dt * (mz - along * c + q * a + r * b),
    ];
    const length = Math.hypot(...moved) || 1;
    for (let axis = 0; axis < 3; axis += 1) x[n + axis] = moved[axis] / length;
  }
}

/** The mean of vectors that follow each other in an array. */
export function mean(x, size) {
  const sums = new Array(size).fill(0);
  for (let n = 0; n < x.length; n += 1) sums[n % size] += x[n];
  return sums.map((sum) => (sum * size) / x.length);
}

/** The order of phases: how long the mean of their unit vectors is, and where it points. */
export function order(theta) {
  const average = (part) => theta.reduce((sum, phase) => sum + part(phase), 0) / theta.length;
  const [cosine, sine] = [average(Math.cos), average(Math.sin)];
  return { r: Math.hypot(cosine, sine), angle: Math.atan2(sine, cosine) };
}

// Runs one scenario with rhea against a real queue manager: node main.js SCENARIO URL ARGUMENTS...
// Ends with exit code 0 when all was as it should be. The scenarios are in scenarios.js.
'use strict';

const scenarios = require('./scenarios.js');

const [name, url, ...args] = process.argv.slice(2);

if (!url || !Object.hasOwn(scenarios, name)) {
  console.error('usage: node main.js SCENARIO URL ARGUMENTS...');
  process.exit(2);
}

scenarios[name](new URL(url), ...args).then(
  () => {
    console.log(`passed ${name}`);
    process.exit(0);
  },
  (failure) => {
    console.error(failure);
    process.exit(1);
  },
);

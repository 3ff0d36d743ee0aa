/** Was written for one process: each rank does the same, and none asks which one it is. */
console.log("hello");

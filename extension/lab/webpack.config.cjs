// Numbers modules and chunks in their order. The default numbers depend on where the repository lies.
module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };

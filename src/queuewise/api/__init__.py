"""What `import queuewise` offers: one function per command, which takes names wherever it takes objects."""

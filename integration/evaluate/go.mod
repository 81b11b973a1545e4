module music/integration/evaluate

go 1.26.0

require music v0.0.0

replace music => ../..

-- Which table this is, how often something was written back into it, and its
-- version.
return {id, generation, now or '0'}
